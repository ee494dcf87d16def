"""The inspector: web pages that show what is in a store, for people with a browser (extra ``ui``).

It is an ASGI application. A service mounts it behind its own login, or ``lastlight-state ui`` serves it::

    from lastlight_state.inspector import inspector

    app = Starlette(routes=[Mount("/state", inspector(store))])

Each address answers with a page, or with the same data as JSON (``Accept: application/json``). A live page also sends
its content again at each change (``Accept: text/event-stream``). All three are made from one dict of data.

How to add a page:

1. ``pages/NAME.py`` creates a `Page` called ``page`` and decorates one plain function for each address below it. The
   function gets an `Ask`, calls verbs of ``ask.store``, and returns a `View`: a template and a dict of records. It
   runs on a thread. It reads the query by ``ask.text`` and similar methods, which refuse invalid values.
2. ``templates/NAME.html`` extends ``base.html`` and fills its block ``content``. Macros for ids, statuses, tables,
   filters and the link to the next page are in ``macros.html``. A template sees JSON types only, and its output is
   escaped.
3. ``pages/__init__.py`` names the module, at its place in the navigation.

A live page has no forms in its block ``content``, which is sent to everybody. Forms go into the block ``actions``.
Names of people and texts they wrote are hidden by field name: `rendering` lists the fields.
"""

from typing import TYPE_CHECKING

from lastlight_state.lazy import public

if TYPE_CHECKING:
    from lastlight_state.inspector.app import inspector as inspector

public(globals(), {"app": "inspector"})
