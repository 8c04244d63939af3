"""Integer vectors that merge by `+` and retract by `-`; they know nothing of Kafka, time, files or bytes on disk.

`grid` says where a score goes, `fixed` how a real becomes integers, `layout` what the cells of a series' vector mean,
`accumulate` adds scored impressions to vectors, `sparse` keeps the vectors of panes, `ranks` keeps every user's sorted
scores, `laws` checks what all of them promise, `codec` turns them to bytes.
"""
