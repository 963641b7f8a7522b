"""The actions on a model, for the list and for its page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.content import Content

from diode_app.actions import Action
from diode_app.data.background import in_thread
from diode_app.data.models import (
    aliases_of,
    can_roll_back,
    compare,
    find_slug_to_change,
    prepare_default,
    promote,
    remove_model,
    set_aliases,
    set_tags,
)
from diode_app.screens.labels import WORDS, Labels
from diode_app.screens.validate_new import open_validation
from diode_app.widgets.files import ask_target
from diode_app.widgets.modals import Confirm, Notice, PickOne, Prompt
from diode_app.widgets.work import acts
from diode_engine import registry
from diode_engine.registry import ModelEntry
from diode_engine.validation.gate import GateVerdict

MODEL_ACTIONS = (
    Action("models.promote", "p", "Promote", "Judge this model by the gate, and make it its "
           "hardware's default if it is no worse than the present one.",
           "diode-engine models promote {model} --hardware={hardware} --store={store}",
           writes=True),
    Action("models.rollback", "b", "Roll back", "Take what was taken before the last promotion.",
           "diode-engine models rollback --hardware={hardware}", writes=True),
    Action("models.compare", "c", "Compare", "This model and another, side by side.",
           "diode-engine models compare {model} OTHER"),
    Action("models.validate", "w", "Validate", "Judge this model on the store's timings, as a run.",
           "diode-engine validate --model={model} --store={store}", writes=True),
    Action("models.export-model", "x", "Export", "Write this model into one file, to pass it on.",
           "diode-engine models export {model} {name}.diode.zip --hardware={hardware}",
           footer=False, writes=True),
    Action("models.delete", "d", "Delete", "Delete this model's files.",
           "diode-engine models remove {model} --hardware={hardware}", writes=True),
    Action("models.alias", "a", "Aliases", "Write this model's aliases.",
           "diode-engine models alias ALIAS {model} --hardware={hardware}", footer=False,
           writes=True),
    Action("models.tag", "t", "Tags", "Write this model's tags.",
           "diode-engine models tag {model} TAG --hardware={hardware}", footer=False,
           writes=True),
    Action("models.note", "n", "Note", "Write a note on this model.",
           "diode-engine models note {model} NOTE --hardware={hardware}", footer=False,
           writes=True),
)  # fmt: skip
_MODEL_ACTIONS = frozenset(action.name for action in MODEL_ACTIONS)


class ModelActions(Labels):
    """A mixin for a screen on which a model is chosen: `entry`. The actions are offered where
    there is one."""

    @property
    def entry(self) -> ModelEntry | None:
        raise NotImplementedError

    @property
    def _chosen(self) -> ModelEntry:
        entry = self.entry
        assert entry is not None, "the actions are offered for a model"
        return entry

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        may = super().check_action(action, parameters)
        if action not in _MODEL_ACTIONS or not may:
            return may
        entry = self.entry if self.has_body else None
        if entry is None:
            return False
        look, slug = self.session.store.last, self._slug(entry)
        default = "default" if slug == entry.model.slug else f"{slug}/default"
        offered: dict[str, Callable[[], bool]] = {
            "promote": lambda: look.ready and default not in entry.aliases,
            "rollback": lambda: can_roll_back(slug, look.registry),
            "validate": lambda: look.ready,
            "delete": lambda: entry.model.own,
        }
        return offered.get(action, lambda: True)()

    def values(self) -> dict[str, object]:
        entry = self.entry
        if entry is None:
            return {}
        model = entry.model
        return {
            "model": model.reference,
            "name": model.name,
            "hardware": self._slug(entry),
            "link": f"{model.slug}/{model.reference}",
        }

    def _slug(self, entry: ModelEntry) -> str:
        return find_slug_to_change(entry, self.session.hardware)

    def model_removed(self) -> None:
        """Called when the chosen model was deleted."""

    # Which one is taken

    @acts(writes=True)
    async def action_promote(self) -> str | None:
        entry = self._chosen
        access, reference, slug = self.session.store, entry.model.reference, self._slug(entry)
        verdict = await self.wait_for(
            promote(access, entry, slug), f"{reference} is judged on the held-out problems ..."
        )
        if verdict.passed:
            title = f"✓ {reference} is taken now"
            await self.app.push_screen_wait(Notice(title, write_verdict(verdict)))
            return None
        failed = [check.name for check in verdict.checks if not check.passed]
        refused = Content.styled(f"✗ {reference} is not promoted\n\n", "bold")
        if not await self.app.push_screen_wait(
            Confirm(refused + write_verdict(verdict), yes="Take it anyway", no="Leave it")
        ):
            return None
        reason = await self.app.push_screen_wait(
            Prompt(
                f"Why should {reference} be taken anyway?",
                f"although it fails: {', '.join(failed)}",
                check=lambda given: None if given.strip() else "The history keeps the reason.",
            )
        )
        if reason is None:
            return None
        await self.wait_for(
            promote(access, entry, slug, force=reason), f"{reference} becomes the default ..."
        )
        return f"{reference} is taken now, against the gate."

    @acts(writes=True)
    async def action_rollback(self) -> str | None:
        slug = self._slug(self._chosen)
        now, before = await in_thread(lambda: registry.last_change(slug), "history")
        then = before or "what Diode, or a package, has as the default"
        if not await self.confirm(
            f"Take {then} for {slug} again, in place of {now}? {now} is retired then; it can be "
            "promoted again.",
            "Roll back",
        ):
            return None
        set_default = await in_thread(partial(prepare_default, now, slug), "rollback")
        await self.session.store.change(lambda: registry.rollback(slug), "rollback")

        async def undo() -> str:
            await self.session.store.change(set_default, "rollback")
            return f"{now} is taken for {slug} again."

        self.session.undo.append(undo)
        return f"{now} is retired; for {slug} {then} counts again."

    # Looking at it

    def action_validate(self) -> None:
        model = self._chosen.model
        open_validation(self, model.reference, str(model.folder))

    @acts()
    async def action_compare(self) -> str | None:
        from diode_app.screens.compare import CompareScreen

        entry = self._chosen
        known = (await in_thread(registry.overview, "models")).entries
        others = {str(other.model.folder): other for other in known
                  if other.model != entry.model and other.manifest is not None}  # fmt: skip
        if not others:
            return "There is no other model."
        order = sorted(others, key=lambda f: others[f].model.slug != entry.model.slug)
        names = [(f, f"{others[f].model.reference} for {others[f].model.slug}") for f in order]
        question = f"Compare {entry.model.reference} with"
        chosen = await self.app.push_screen_wait(PickOne(question, names))
        if chosen is not None:
            found = await in_thread(lambda: compare(entry, others[chosen]), "compare")
            self.app.push_screen(CompareScreen(self.session, found))
        return None

    # Passing it on, and away

    @acts(writes=True)
    async def action_export_model(self) -> str | None:
        model = self._chosen.model
        name = f"{model.name}-{model.version}.diode.zip"
        target = await ask_target(self.app, f"Write {model.reference} to", name)
        if target is None:
            return None
        replaces = target.exists()  # the person has agreed to that
        digest = await self.session.store.change(
            lambda: registry.export_model(model, target, replace=replaces), "export"
        )
        return f"{model.reference} is in {target}; its SHA-256 is {digest}."

    @acts(writes=True)
    async def action_delete(self) -> str | None:
        entry = self._chosen
        model = entry.model
        named = f" It is {', '.join(entry.aliases)}, which goes too." if entry.aliases else ""
        if not await self.confirm(
            f"Delete {model.reference} for {model.slug} and its files in {model.folder}?"
            f"{named} Its number is not given again.",
            "Delete it",
        ):
            return None
        restore = await self.session.store.change(partial(remove_model, model), "remove")
        self.model_removed()
        if restore is None:
            return f"{model.reference} is deleted."

        async def undo() -> str:
            restored = await self.session.store.change(restore, "import")
            return f"{model.reference} is there again, as {restored}."

        self.session.undo.append(undo)
        return f"{model.reference} is deleted; U undoes that."

    # What a person says of it

    def action_alias(self) -> None:
        model, store = self._chosen.model, self.session.store
        self.edit_label(
            "aliases",
            model.reference,
            lambda: in_thread(lambda: " ".join(aliases_of(model)), "aliases"),
            lambda given: store.change(partial(set_aliases, model, given.split()), "alias"),
            hint=WORDS,
            check=_check_aliases,
        )

    def action_tag(self) -> None:
        model, store = self._chosen.model, self.session.store
        self.edit_label(
            "tags",
            model.reference,
            lambda: in_thread(lambda: " ".join(registry.facts_of(model).tags), "tags"),
            lambda given: store.change(partial(set_tags, model, given.split()), "tag"),
            hint=WORDS,
        )

    def action_note(self) -> None:
        model, store = self._chosen.model, self.session.store
        self.edit_label(
            "note",
            model.reference,
            lambda: in_thread(lambda: registry.facts_of(model).note, "note"),
            lambda note: store.change(lambda: registry.set_note(model, note), "note"),
        )


def write_verdict(verdict: GateVerdict) -> Content:
    """Return the gate's checks, one on each line."""
    lines = [Content(f"Compared with {verdict.against}:")]
    width = max([12, *(len(check.name) + 1 for check in verdict.checks)])
    for check in verdict.checks:
        sign, colour = ("✓", "$text-success") if check.passed else ("✗", "$text-error")
        lines.append(Content.assemble((f"{sign} {check.name:<{width}}", colour), check.found))
    return Content("\n").join(lines)


def _check_aliases(given: str) -> str | None:
    return "The default is set by promoting a model." if "default" in given.split() else None
