#!/usr/bin/env python3
import sys

from downstream.cli import door

sys.exit(door("watch"))
