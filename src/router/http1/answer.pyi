"""One answer as it comes: its head, and where its body ends."""

from typing import final

@final
class Answer: ...
