"""Write this rank's arguments and the variables named BYTES_* as hexadecimal bytes."""

import json
import os
import sys

seen = {
    "arguments": [os.fsencode(word).hex() for word in sys.argv[1:]],
    "variables": {
        name.decode(): value.hex()
        for name, value in os.environb.items()
        if name.startswith(b"BYTES_")
    },
}
with open(f"seen-{os.environ['RANK']}.json", "w") as file:  # noqa: PTH123
    json.dump(seen, file)
