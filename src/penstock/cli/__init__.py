"""The commands of the penstock program."""
