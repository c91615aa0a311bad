"""Read two inputs and write two outputs by ModelArts' paths; the options are not looked at."""

import os
from pathlib import Path

MODELARTS = Path("/home/ma-user/modelarts")
index = os.environ["VC_TASK_INDEX"]
text = (MODELARTS / "inputs/data_url_0/part").read_text()
text += (MODELARTS / "inputs/vocabulary_0").read_text()
(MODELARTS / f"outputs/train_url_0/model-{index}").write_text(text)
other = MODELARTS / "outputs/other"
other.mkdir(exist_ok=True)
(other / f"note-{index}").write_text("not declared\n")
