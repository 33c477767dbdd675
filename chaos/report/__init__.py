"""Report of a run as one HTML page.

Contract.  ``build(folder)`` reads what a run left (``run.json``, ``history.jsonl``,
``leadership.jsonl``, ``verdict.json``; a run that broke off has only some of them) and writes
``report.html``: one file that needs no network.  Histories of any length become charts of bounded
size: everything is aggregated before it is drawn.  Only ``build``, ``charts``, ``lanes`` and
``series`` import ``REPORT_PACKAGES``; commands import these modules late.
"""

#: Packages of the extra ``chaos`` that a page is made with.
REPORT_PACKAGES = ("jinja2", "matplotlib", "numpy")
