"""Print its arguments, each in a line."""

import sys

sys.stdout.write("".join(f"{word}\n" for word in sys.argv[1:]))
