"""One adapter per GPU vendor, all of one shape (`base.py`)."""
