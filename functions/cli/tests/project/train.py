import os

print("worker", os.environ["REKINDLE_WORKER"])
