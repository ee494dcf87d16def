"""The inspector: pages that show what is in a store, for people with a browser (extra ``ui``).

It is an ASGI application, which a service mounts behind its own login, and which ``lastlight-state ui`` serves::

    from lastlight_state.inspector import inspector

    app = Starlette(routes=[Mount("/state", inspector(store))])

Each address answers with a page, with the same as JSON (``Accept: application/json``), and where the page is live with
its content again and again (``Accept: text/event-stream``). All three are made from one dict of data.

How a page is added:

1. ``pages/NAME.py`` makes a `Page` called ``page`` and decorates one plain function for each address below it. A
   function is given an `Ask`, calls verbs of ``ask.store``, and returns a `View`: a template and a dict of records. It
   runs on a thread. It reads the query by ``ask.text`` and its kin, which refuse what makes no sense.
2. ``templates/NAME.html`` extends ``base.html`` and fills its block ``content``; macros for ids, statuses, tables,
   filters and the next page are in ``macros.html``. A template sees JSON types only, and what it prints is
   escaped.
3. ``pages/__init__.py`` names the module, at its place in the navigation.

A page that is live has no forms in its block ``content``, which everybody is sent; they go into ``actions``. Names of
people and what they wrote are hidden by the names of their fields, which `rendering` lists.
"""

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.inspector.app import inspector as inspector

public(globals(), {"app": "inspector"})
