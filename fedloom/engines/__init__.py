"""Engines run algorithms: iterators of records."""

from fedloom.engines.asynchronous import events as events
from fedloom.engines.clock import Clock as Clock
from fedloom.engines.oracle import reference as reference
from fedloom.engines.records import ClientError as ClientError
from fedloom.engines.records import Counters as Counters
from fedloom.engines.records import NonFiniteUpdate as NonFiniteUpdate
from fedloom.engines.records import Record as Record
from fedloom.engines.synchronous import simulate as simulate
