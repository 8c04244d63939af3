"""Auctions replayed under every version's scores at every operating point."""
