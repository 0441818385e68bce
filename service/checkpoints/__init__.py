"""Uploads weights and exported programs, lists and deletes them.

The core knows checkpoints without this feature: jobs name them (`submission`), wait for their checks
(`store/checkpoints.py`, the table and the look-up) and are told a worker's verdict
(`contract/weights/checkpoints.py`); room is counted with all that a tenant keeps (`store/uploads.py`,
`store/quotas.py`).
"""
