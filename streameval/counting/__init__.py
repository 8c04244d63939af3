"""Where scored, labelled impressions are counted, by pane, user, slice and request: start with `scoreboard`."""
