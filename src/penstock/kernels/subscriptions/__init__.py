"""Range subscriptions: which of them an update concerns, and what each is to be told (Xie, chapter 5)."""
