"""The route that gives the story of the first screen."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route


async def tell(_request: Request) -> Response:
    # Imported when used: the server listens sooner without what reads answers.
    from pages.components.first_screen.told import story_json

    text = await asyncio.to_thread(story_json)
    return Response(text, media_type="application/json", headers={"cache-control": "no-cache"})


ROUTES: list[BaseRoute] = [Route("/api/story", tell)]
