# make demo    a real workflow on SQLite, crash and resume included
# make test    the suite on SQLite and on a real Postgres; with COVERAGE=1 all of it, and which lines it reached
# make slow    the tests that make test leaves out: 3 of 100, which take nearly half of the time of all
# make affected  the tests nearest to what you changed, on SQLite
# make quick   what ARGS names, on SQLite and without coroutines, in one process: for the test that you are writing
#
# Either makes .venv first, with uv when it is there. Another interpreter: make test PYTHON=python3.13

PYTHON ?= python3
WORKERS ?= auto
COVERAGE ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin

# Where the environment forbids bytecode beside the sources, it is kept in .venv: otherwise each test process compiles
# all tests anew, and each program that a test starts the whole library.
ifneq ($(PYTHONDONTWRITEBYTECODE),)
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/$(VENV)/bytecode
unexport PYTHONDONTWRITEBYTECODE
endif

UV := $(shell command -v uv 2>/dev/null)

ifeq ($(UV),)
make_venv = $(PYTHON) -m venv $(VENV)
pip_install = $(BIN)/python -m pip install --quiet --disable-pip-version-check
else
make_venv = $(UV) venv --quiet --allow-existing --python "$$(command -v $(PYTHON))" $(VENV)
pip_install = $(UV) pip install --quiet --python $(BIN)/python
endif
install = $(pip_install) --editable

# The tests of what a version of the server can change. make servers tries them on other versions, from packages.
ON_A_SERVER := tests/backends tests/db tests/cli/test_roles.py tests/maintenance/copy tests/maintenance/prune \
	tests/migrations tests/outputs tests/workflows
VERSIONS ?= 14 15 16 17 18

.PHONY: demo test slow quick pysqlite3 affected files interchange browser server servers soak frameworks cluster citus lint types bench site record build clean interpreters
.DELETE_ON_ERROR:

demo: $(VENV)/.runtime
	$(BIN)/lastlight-state demo

pytest = -m pytest --numprocesses=$(WORKERS) --maxprocesses=8 --dist=worksteal $(ARGS)

test: $(VENV)/.test
ifeq ($(COVERAGE),)
	$(BIN)/python $(pytest) $(if $(ARGS),,-m "not soak and not slow")
else
	$(BIN)/coverage erase
	$(BIN)/coverage run $(pytest)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report
endif

# The tests with the mark slow. If ARGS is given to make test, it runs the slow tests of that part, too.
slow: $(VENV)/.test
	$(BIN)/python $(pytest) -m "slow and not soak"

# No Postgres is started unless one of these tests has no other database.
quick: $(VENV)/.test
	$(BIN)/python -m pytest --quick -o lastlight_postgres_at_start=false $(ARGS)

# What ARGS names with the driver of the extra sqlite, which no process of a test has another SQLite beside.
pysqlite3: $(VENV)/.test
	$(install) '.[sqlite]'
	LASTLIGHT_STATE_SQLITE_DRIVER=pysqlite3 PYTHONPATH=$(CURDIR)/tests/support/on_pysqlite3 \
		$(BIN)/python -m pytest --quick -o lastlight_postgres_at_start=false --numprocesses=$(WORKERS) $(ARGS)

# The tests that are nearest to what differs from this commit, on SQLite: for most changes a minute or two.
SINCE ?= origin/main
affected: $(VENV)/.test
	$(MAKE) quick ARGS="$$(PYTHONPATH=tests $(BIN)/python -P tests/support/affected.py $(SINCE)) --numprocesses=$(WORKERS) $(ARGS)"

# The wing of files: line files, logs of agents and runs, mailboxes.
files: $(VENV)/.test
	$(BIN)/python $(pytest) tests/files

# The wing of interchange: imports of other programs' files, bundles, and the adoption of their databases.
interchange: $(VENV)/.test
	$(BIN)/python $(pytest) tests/maintenance/imports tests/maintenance/bundles tests/migrations/adoption

# On the server whose programs are in this folder: make server POSTGRES=/usr/lib/postgresql/15/bin
server: $(VENV)/.test
	LASTLIGHT_TEST_POSTGRES=$(POSTGRES) $(BIN)/python $(pytest) --on-a-server $(ON_A_SERVER)

servers: $(VENV)/.test
	set -e; folder=$$(mktemp -d); chmod 755 $$folder; trap 'rm -rf $$folder' EXIT; \
	for version in $(VERSIONS); do \
		$(MAKE) server POSTGRES=$$(.ci/server $$version $$folder/$$version); \
	done

# The rounds, rows and seconds that the behaviours name: an hour or two rather than minutes. Whether a process grows:
# make soak ARGS=tests/faults/test_mixed_load.py LASTLIGHT_TEST_MINUTES=30
soak: $(VENV)/.test
	$(BIN)/python -m pytest -m soak --timeout=3600 $(ARGS)

# What other frameworks say of our stores for them: their suites, in an environment that has them. These are the
# projects whose suites are taken from source distributions, in the versions of tests/frameworks/requirements.txt.
SUITES := fasta2a langgraph langgraph-checkpoint langgraph-checkpoint-postgres langgraph-checkpoint-sqlite langgraph-prebuilt \
	mcp openai-agents
empty :=
space := $(empty) $(empty)

frameworks: $(VENV)/frameworks/.made
	$(VENV)/frameworks/bin/python -m pytest -p no:asyncio \
		--numprocesses=$(WORKERS) --maxprocesses=8 --dist=worksteal tests/frameworks $(ARGS)

# Three Postgres servers under Patroni, each on a host of its own (a network namespace, so as root) whose leader falls
# ten times, once with and once without a synchronous standby; then the tests of one standby, of replicas and poolers.
cluster: $(VENV)/cluster/.made
	LASTLIGHT_TEST_PATRONI=$(CURDIR)/$(VENV)/cluster unshare --net \
		$(BIN)/python -m pytest -o lastlight_postgres_at_start=false tests/cluster $(ARGS)
	$(BIN)/python $(pytest) $(addprefix tests/backends/postgres/test_,failover.py replicas.py silent_servers.py pgbouncer.py)

# The tests of Postgres in a distributed schema of Citus, on a server whose programs or URL LASTLIGHT_TEST_CITUS names.
# Without it they are skipped, and said to be. Tests that read plans or compare a catalog fail there.
citus: $(VENV)/.test
	PYTHONPATH=$(CURDIR)/tests $(BIN)/python $(pytest) -p support.citus --on-a-server

# CPython 3.14 and 3.15, of Debian's next version in a folder below .venv: as root on a Debian that has debootstrap.
# `.ci/sid python3.15 …` runs one of them.
interpreters: $(VENV)/sid/.made

# The pages of the inspector in a real browser: tests that are skipped where there is none.
browser: $(VENV)/.browser
	$(BIN)/python $(pytest) tests/inspector/test_browser.py

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py

types: $(VENV)/.test
	$(BIN)/mypy lastlight_state tests alembic docs/schema.py docs/api.py docs/reference.py
	PYTHONPATH=tests $(BIN)/python -P tests/support/docs/examples.py build/examples
	$(BIN)/mypy --config-file= --strict --allow-subclassing-any --disable-error-code=import-not-found build/examples

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks $(ARGS)

# The pages of docs/ as a site, in build/site, with the reference that docs/reference.py makes. It fails on a link or an
# anchor that leads nowhere.
site: $(VENV)/.site
	$(BIN)/mkdocs build --strict

# Everything that tests compare with a recording: public names, the reference of tables, golden databases and shapes of
# the schema, defaults, locks, refusals.
record: $(VENV)/.test
	PYTHONPATH=.:tests $(BIN)/python -P tests/support/reference.py
	PYTHONPATH=.:tests $(BIN)/python -P tests/support/migrations/golden.py
	PYTHONPATH=.:tests $(BIN)/python -P tests/support/defaults.py
	PYTHONPATH=.:tests $(BIN)/python -P tests/support/locks.py
	PYTHONPATH=.:tests $(BIN)/python -P tests/support/refusals.py
	PYTHONPATH=.:tests $(BIN)/python -P tests/support/frozen.py

build: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	cd dist && { sha256sum * || shasum --algorithm 256 *; } 2> /dev/null

clean:
	rm -rf $(VENV) dist build htmlcov .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed and $(PYTHON) is none: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(make_venv)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python pyproject.toml
	$(install) .
	@touch $@

$(VENV)/.test: $(VENV)/.python pyproject.toml
	$(install) '.[test]'
	@touch $(VENV)/.runtime $@

$(VENV)/frameworks/.made: $(VENV)/.python pyproject.toml tests/frameworks/requirements.txt
	$(BIN)/python -m venv $(VENV)/frameworks
	$(VENV)/frameworks/bin/python -m pip install --quiet --disable-pip-version-check \
		--requirement tests/frameworks/requirements.txt --editable '.[test,a2a,adk,fasta2a,langgraph,mcp,openai-agents,pydantic-ai]'
	rm -rf $(VENV)/frameworks/sdist $(VENV)/frameworks/suites
	$(VENV)/frameworks/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
		--no-build-isolation --dest $(VENV)/frameworks/sdist \
		$$(grep --extended-regexp '^($(subst $(space),|,$(SUITES)))==' tests/frameworks/requirements.txt)
	set -e; for sdist in $(VENV)/frameworks/sdist/*.tar.gz; do \
		name=$$(basename $$sdist); folder=$(VENV)/frameworks/suites/$${name%-*}; mkdir -p $$folder; \
		tar --extract --gzip --strip-components=1 --directory $$folder --file $$sdist; \
	done
	@touch $@

$(VENV)/cluster/.made: $(VENV)/.test tests/cluster/requirements.txt
	$(pip_install) --upgrade --target $(VENV)/cluster --requirement tests/cluster/requirements.txt
	@touch $@

$(VENV)/sid/.made:
	mkdir -p $(VENV)
	.ci/sid
	@touch $@

$(VENV)/.browser: $(VENV)/.test
	{ command -v chromium && command -v chromedriver; } > /dev/null || apt-get install --yes --no-install-recommends chromium chromium-driver
	$(pip_install) 'selenium>=4.30'
	$(pip_install) --no-deps 'axe-playwright-python>=0.1.8' # for the script of axe alone
	@touch $@

$(VENV)/.site: $(VENV)/.python pyproject.toml
	$(install) '.[site]'
	@touch $(VENV)/.runtime $@
