"""Did the deploy hurt? Deploys, comparisons of versions, and verdicts that stay valid however often they are checked."""
