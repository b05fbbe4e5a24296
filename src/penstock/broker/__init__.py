"""How the news of subscriptions travels: cells of the plane of subscriptions, gateways, and a broker between them."""
