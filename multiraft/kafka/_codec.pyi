from typing import Any

from multiraft.kafka.messages.fetch import FetchRequest as FetchRequest
from multiraft.kafka.messages.fetch import FetchResponse as FetchResponse
from multiraft.kafka.messages.headers import RequestHeader as RequestHeader
from multiraft.kafka.messages.list_offsets import ListOffsetsRequest as ListOffsetsRequest
from multiraft.kafka.messages.list_offsets import ListOffsetsResponse as ListOffsetsResponse
from multiraft.kafka.messages.metadata import MetadataRequest as MetadataRequest
from multiraft.kafka.messages.metadata import MetadataResponse as MetadataResponse
from multiraft.kafka.messages.produce import ProduceRequest as ProduceRequest
from multiraft.kafka.messages.produce import ProduceResponse as ProduceResponse
from multiraft.kafka.schema import Buffer

SOURCE_DIGEST: str
NUMBERS: dict[str, int]

def decode(name: str, data: Buffer, at: int, version: int,
           elements_max: int) -> tuple[Any, int]: ...
def encode(name: str, value: Any, version: int, before: bytes) -> list[Buffer]: ...
