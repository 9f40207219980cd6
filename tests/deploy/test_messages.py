"""What messages carry: small tensors in one piece, large ones as an array that Flower divides."""

import pytest
import torch
from flwr.app import ConfigRecord, RecordDict

from fedadb.core.errors import Fault
from fedadb.deploy.messages import SMALL, make_content, table_in, tensor_record, tensors_in


@pytest.mark.parametrize("large", [False, True])
def test_tensors_arrive_as_they_were_sent(large: bool) -> None:
    sent = torch.arange(SMALL // 4 if large else 5)
    records = make_content({"rows": 3}, tensor_record({"w": sent}))
    assert bool(records.array_records) == large
    assert table_in(records) == {"rows": 3}
    assert torch.equal(tensors_in(records)["w"], sent)


def test_tensors_that_are_no_bytes_are_refused() -> None:
    records = RecordDict({"tensors": ConfigRecord({"safetensors": "text"})})
    with pytest.raises(Fault, match="has no bytes"):
        tensors_in(records)
