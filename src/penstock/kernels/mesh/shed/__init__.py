"""Shedding: which rows of a stream are joined now, when more arrive than can be (000 §4).

| join \\ goal | lose the fewest results | an unbiased sample |
|---|---|---|
| every row has one partner | `keepw` | `samplew` |
| any number of partners | `topw` | `cluster` |

`optofflineshed` is the yardstick: what could have been kept with the whole stream known.
"""
