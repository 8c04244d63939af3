"""Where this folder is on the path there is no pandas, as with most who run the program: no locked runtime package needs it.

pyarrow imports it where it can, which is a tenth of what a start takes.
"""

raise ImportError("tests/hidden hides pandas")
