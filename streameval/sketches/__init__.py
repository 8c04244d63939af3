"""Integer vectors that merge by `+` and retract by `-`; they know nothing of Kafka, time, files or bytes on disk.

`grid` says where a score goes, `fixed` how a real becomes integers, `layout` what the cells of a series' vector mean,
`accumulate` adds scored impressions to vectors, `sparse` holds the vectors of panes, `ranks` every user's sorted
scores, `laws` checks what all sketches guarantee, `codec` converts them to bytes.
"""
