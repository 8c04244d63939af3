"""Where scored, labelled impressions are counted, by pane, user, slice and request: `scoreboard` is where to begin."""
