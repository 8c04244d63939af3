"""Auctions that are run again under every version's scores at every operating point."""
