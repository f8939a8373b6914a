"""One adapter per inference engine, all of one shape (`base.py`)."""
