"""The pass ``contention``: a case beside a load on the phone, and without one."""
