# What one does with a checkout. packaging/bootstrap does the work and says why.
.DEFAULT_GOAL := help
.PHONY: help run setup test test-ci test-all lint check bench bench-engine bench-security bench-agent bench-http bench-web train page dist deb clean

export ARGS JSON PYTHONS

help:
	@echo 'make run      set up what is missing, then talk to clawd on the packaged model'
	@echo 'make setup    everything that run needs, without running'
	@echo 'make test     the tests, on the Python of .venv; ARGS="-k words" goes to pytest'
	@echo 'make test-ci  what needs third-party clients, a browser, the package or a booted Debian, and'
	@echo '              what takes long, and what depends on Python on the others of 3.11 to 3.13;'
	@echo '              PYTHONS="3.13" chooses among them'
	@echo 'make test-all everything, with all rounds and examples, on every Python found here'
	@echo 'make lint     format, lint, types, imports, spelling'
	@echo 'make check    lint, then the fast tests'
	@echo 'make bench    measure this machine; JSON=FILE keeps the figures'
	@echo 'make bench-engine  the same for the engine alone, against llama-server, built once;'
	@echo '              ARGS="--only decode_1_fresh" chooses rows'
	@echo 'make bench-security  the emergency stop, what a call costs around its program, receipts'
	@echo '              a second; ARGS="--only call_overhead" chooses rows'
	@echo 'make bench-agent  tasks that the embedded model gets done, and how fast memory is searched'
	@echo 'make bench-http  what each dialect over HTTP costs, many streams at once, llama-server beside it'
	@echo 'make bench-web  the page in Chromium with 10,000 messages, 5,000 conversations, a fast stream'
	@echo 'make train    train the adapter of the packaged assistant, or go on where that was stopped;'
	@echo '              ARGS="--workers 2 --install", training/README.md'
	@echo 'make page     the page of the gateway, from web (setup and run do it as well)'
	@echo 'make dist     the sdist and the wheel, in dist'
	@echo 'make deb      the package for Debian 12, in build/deb (needs Debian 12; docs/install.md)'
	@echo 'make clean    remove what make made here (never ~/.clawd)'

run:
	@sh packaging/bootstrap.sh run

setup:
	@sh packaging/bootstrap.sh setup

test:
	@sh packaging/bootstrap.sh test

test-ci:
	@sh packaging/bootstrap.sh test-ci

test-all:
	@sh packaging/bootstrap.sh test-all

lint:
	@sh packaging/bootstrap.sh lint

check:
	@sh packaging/bootstrap.sh check

bench:
	@sh packaging/bootstrap.sh bench

bench-engine:
	@sh packaging/bootstrap.sh bench-engine

bench-security:
	@sh packaging/bootstrap.sh bench-security

bench-agent:
	@sh packaging/bootstrap.sh bench-agent

bench-http:
	@sh packaging/bootstrap.sh bench-http

bench-web:
	@sh packaging/bootstrap.sh bench-web

train:
	@sh packaging/bootstrap.sh train

page:
	@sh packaging/bootstrap.sh page

dist:
	@sh packaging/bootstrap.sh dist

deb:
	@sh packaging/bootstrap.sh deb

clean:
	@sh packaging/bootstrap.sh clean
