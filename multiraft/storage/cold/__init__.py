"""Cold segments: files of records that the cleaner copied out of segments with few live bytes.

Contract.  ``cold_segment`` has the names, places and headers of the files, ``cold_index`` the index
file beside each of them, ``contents`` what a start reads of both.  ``copy_job`` writes a cold
segment in bounded steps; ``cleaning_policy`` decides which segments are copied next.

Theory.  A segment of the journal has records of all partitions, and its space returns when the last
of them is not needed any longer.  Copying the few that are needed frees the rest.
"""
