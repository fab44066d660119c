"""A router in one process: both planes on one loop, the index between them."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack

from router._core import Index, Slots
from router.app.control import serve_metrics, start_control, tell_listening
from router.app.data import DataPlane, Reports, start_data
from router.settings import Settings

_log = logging.getLogger("router.app")


class Router:
    """A whole router on the running loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._data: DataPlane | None = None
        self.port = 0

    async def start(self) -> None:
        """Builds and starts everything. Raises OSError for an address that is taken."""
        settings = self._settings
        index = Index(Slots())
        control = await start_control(
            settings, index, self._stack, draining=self._draining
        )

        async def admin(connection: socket.socket) -> None:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(control.admin, connection)

        data = start_data(
            settings,
            control.registry,
            index,
            control.metrics,
            Reports(control.health.refused, control.models.missing),
            admin,
            self._stack,
        )
        if data.keys is not None:
            await data.keys.start()
        self.port = await data.server.start(settings.host, settings.port)
        self._data = data
        await serve_metrics(settings, control.metrics, self._stack)
        tell_listening(settings, self.port)

    def _draining(self) -> bool:
        return self._data is not None and self._data.server.draining

    async def drain(self) -> None:
        """Lets running requests finish, within the time that is set for it."""
        assert self._data is not None
        _log.info("draining")
        await self._data.drain(self._settings.drain_timeout_secs)

    async def stop(self) -> None:
        """Stops everything, in the reverse order."""
        await self._stack.aclose()
        _log.info("stopped")
