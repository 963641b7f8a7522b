"""The actions on a model, for the list and for its page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from diode_app.actions import Action
from diode_app.data.models import Verdict, compare, find_slug_to_change, promote
from diode_app.data.models import models as all_models
from diode_app.data.taken_back import defaulted_again, removed_model
from diode_app.data.threads import in_thread
from diode_app.screens.base import DiodeScreen
from diode_app.screens.validate_new import NewValidationScreen, model_choices
from diode_app.widgets.modals import Confirm, Notice, PickOne, Prompt
from diode_app.widgets.saving import target_of

if TYPE_CHECKING:
    from diode_engine.registry import ModelEntry

MODEL_ACTIONS = (
    Action("models.promote", "p", "Promote", "Judge this model by the gate, and make it its "
           "hardware's default if it is no worse than the present one.",
           "diode-engine models promote {model} --hardware={hardware} --store={store}"),
    Action("models.rollback", "b", "Roll back", "Take what was taken before the last promotion.",
           "diode-engine models rollback --hardware={hardware}"),
    Action("models.compare", "c", "Compare", "This model and another, side by side.",
           "diode-engine models compare {model} OTHER"),
    Action("models.validate", "w", "Validate", "Judge this model on the store's timings, as a run.",
           "diode-engine validate --model={model} --store={store}"),
    Action("models.verify", "v", "Verify", "Check this model's files against their hashes.",
           "diode-engine models verify {model} --hardware={hardware}"),
    Action("models.archive", "x", "To a file", "Write this model into one file, to pass it on.",
           "diode-engine models export {model} {name}.diode.zip --hardware={hardware}"),
    Action("models.delete", "d", "Delete", "Delete this model's files.",
           "diode-engine models remove {model} --hardware={hardware}"),
    Action("models.alias", "a", "Aliases", "Write this model's aliases.",
           "diode-engine models alias ALIAS {model} --hardware={hardware}", footer=False),
    Action("models.tag", "t", "Tags", "Write this model's tags.",
           "diode-engine models tag {model} TAG --hardware={hardware}", footer=False),
    Action("models.note", "n", "Note", "Write a note on this model.",
           "diode-engine models note {model} NOTE --hardware={hardware}", footer=False),
)  # fmt: skip


class ModelActions(DiodeScreen):
    """A mixin for a screen on which a model is chosen: `entry`."""

    @property
    def entry(self) -> ModelEntry | None:
        raise NotImplementedError

    def _chosen(self) -> ModelEntry | None:
        if self.entry is None:
            self.notify("There is no model chosen.")
        return self.entry

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
        here = self.session.here
        return find_slug_to_change(entry, None if here is None else here.hardware)

    def removed(self) -> None:
        """Called when the chosen model was deleted."""

    # Which one is taken

    def action_promote(self) -> None:
        if (entry := self._chosen()) is None:
            return
        access, reference = self.session.store, entry.model.reference
        slug = self._slug(entry)

        async def judge() -> str | None:
            access.must_be_writable()
            verdict = await self.waited_for(
                promote(access, entry, slug), f"{reference} is judged on the held-out problems ..."
            )
            if verdict.promoted:
                await self.app.push_screen_wait(
                    Notice(f"✓ {reference} is taken now", checks(verdict))
                )
                return None
            failed = [name for name, passed, _ in verdict.checks if not passed]
            title = Content.styled(f"✗ {reference} is not promoted\n\n", "bold")
            if not await self.app.push_screen_wait(
                Confirm(title + checks(verdict), yes="Take it anyway", no="Leave it")
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
            await self.waited_for(
                promote(access, entry, slug, force=reason), f"{reference} becomes the default ..."
            )
            return f"{reference} is taken now, against the gate."

        self.act(judge, f"promotes {reference}")

    def action_rollback(self) -> None:
        if (entry := self._chosen()) is None:
            return
        slug = self._slug(entry)

        async def back() -> str | None:
            from diode_engine import registry

            self.session.store.must_be_writable()
            now, before = await in_thread(lambda: registry.last_change(slug), "history")
            then = before or "what Diode, or a package, has as the default"
            if not await self.confirmed(
                f"Take {then} for {slug} again, in place of {now}? {now} is retired then; it can "
                "be promoted again.",
                "Roll back",
            ):
                return None
            taken_back = await in_thread(partial(defaulted_again, now, slug), "rollback")
            await self.session.store.change(lambda: registry.rollback(slug), "rollback")

            async def take_back() -> str:
                await self.session.store.change(taken_back, "rollback")
                return f"{now} is taken for {slug} again."

            self.session.undo.add(f"the roll-back of {now}", take_back)
            return f"{now} is retired; for {slug} {then} counts again."

        self.act(back, f"rolls {slug} back")

    # Looking at it

    def action_verify(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def verify() -> str:
            from diode_engine import registry

            await in_thread(lambda: registry.verify(entry.model), "verify")
            return f"{entry.model.reference} is whole: its files are what its manifest says."

        self.act(verify, f"verifies {entry.model.reference}", asks=False)

    def action_validate(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def ask() -> None:
            self.session.store.must_be_writable()
            choices = await in_thread(model_choices, "models")
            model = entry.model.reference
            given = model if model in choices else str(entry.model.folder)
            self.app.push_screen(NewValidationScreen(self.session, choices, given))

        self.act(ask, f"judges {entry.model.reference}")

    def action_compare(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def choose() -> None:
            from diode_app.screens.compare import CompareScreen

            there = (await in_thread(lambda: all_models(None, 0), "models")).entries
            others = {folder: other for folder, other in there.items()
                      if other.model != entry.model and other.manifest is not None}  # fmt: skip
            if not others:
                self.notify("There is no other model.")
                return
            order = sorted(others, key=lambda f: others[f].model.slug != entry.model.slug)
            chosen = await self.app.push_screen_wait(
                PickOne(
                    f"Compare {entry.model.reference} with",
                    [(f, f"{others[f].model.reference} for {others[f].model.slug}")
                     for f in order],
                )
            )  # fmt: skip
            if chosen is not None:
                found = await in_thread(lambda: compare(entry, others[chosen]), "compare")
                self.app.push_screen(CompareScreen(self.session, found))

        self.act(choose, "compares two models")

    # Passing it on, and away

    def action_archive(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def export() -> str | None:
            from diode_engine import registry

            model = entry.model
            self.session.store.must_be_writable()
            name = f"{model.name}-{model.version}.diode.zip"
            target = await target_of(self.app, f"Write {model.reference} to", name)
            if target is None:
                return None
            there = target.exists()  # then the person has agreed to replace it
            digest = await self.session.store.change(
                lambda: registry.export_model(model, target, replace=there), "export"
            )
            return f"{model.reference} is in {target}; its SHA-256 is {digest}."

        self.act(export, f"writes {entry.model.reference} to a file")

    def action_delete(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def delete() -> str | None:

            model = entry.model
            self.session.store.must_be_writable()
            named = f" It is {', '.join(entry.aliases)}, which goes too." if entry.aliases else ""
            if not await self.confirmed(
                f"Delete {model.reference} for {model.slug} and its files in {model.folder}?"
                f"{named} Its number is not given again.",
                "Delete it",
            ):
                return None
            again = await self.session.store.change(partial(removed_model, model), "remove")
            self.removed()
            if again is None:
                return f"{model.reference} is deleted."

            async def take_back() -> str:
                there = await self.session.store.change(again, "import")
                return f"{model.reference} is there again, as {there}."

            self.session.undo.add(f"the deletion of {model.reference}", take_back)
            return f"{model.reference} is deleted; U undoes that."

        self.act(delete, f"deletes {entry.model.reference}")

    # What a person says of it

    def action_alias(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def alias() -> str | None:
            from diode_engine import registry

            model = entry.model
            self.session.store.must_be_writable()
            # Those of another hardware have its slug before them.
            before = [name for name in entry.aliases
                      if name != registry.DEFAULT and "/" not in name]  # fmt: skip
            given = await self.app.push_screen_wait(
                Prompt(
                    f"Aliases of {model.reference}, with spaces between (default: by Promote)",
                    " ".join(before), check=_check_aliases,
                )
            )  # fmt: skip
            if given is None:
                return None
            after = list(dict.fromkeys(given.split()))

            def write() -> None:
                for name in after:
                    if name not in before:
                        registry.set_alias(name, model)
                for name in before:
                    if name not in after:
                        registry.remove_alias(name, model.slug)

            await self.session.store.change(write, "alias")
            return f"{model.reference} has the aliases {' '.join(after) or '(none)'}."

        self.act(alias, f"names {entry.model.reference}")

    def action_tag(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def tag() -> str | None:
            from diode_engine import registry

            self.session.store.must_be_writable()
            before = entry.facts.tags
            given = await self.app.push_screen_wait(
                Prompt(f"Tags of {entry.model.reference}, with spaces between", " ".join(before))
            )
            if given is None:
                return None
            after = given.split()
            gone = [word for word in before if word not in after]
            known = await self.session.store.change(
                lambda: registry.tag(entry.model, after, gone), "tag"
            )
            taken_back = partial(registry.tag, entry.model, before, set(after) - set(before))

            async def take_back() -> str:
                tags = (await self.session.store.change(taken_back, "tag")).tags
                return f"{entry.model.reference} has the tags {' '.join(tags) or '(none)'} again."

            self.session.undo.add(f"the tags of {entry.model.reference}", take_back)
            return f"{entry.model.reference} has the tags {' '.join(known.tags) or '(none)'}."

        self.act(tag, f"tags {entry.model.reference}")

    def action_note(self) -> None:
        if (entry := self._chosen()) is None:
            return

        async def note() -> str | None:
            from diode_engine import registry

            self.session.store.must_be_writable()
            given = await self.app.push_screen_wait(
                Prompt(f"Note on {entry.model.reference}", entry.facts.note)
            )
            if given is None:
                return None
            await self.session.store.change(lambda: registry.set_note(entry.model, given), "note")
            return f"The note on {entry.model.reference} is written."

        self.act(note, f"notes on {entry.model.reference}")


def checks(verdict: Verdict) -> Content:
    """The gate's checks, one on each line."""
    lines = [Content(f"Compared with {verdict.against}:")]
    width = max([12, *(len(name) + 1 for name, _, _ in verdict.checks)])
    for name, passed, found in verdict.checks:
        sign, colour = ("✓", "$text-success") if passed else ("✗", "$text-error")
        lines.append(Content.assemble((f"{sign} {name:<{width}}", colour), found))
    return Content("\n").join(lines)


def _check_aliases(given: str) -> str | None:
    return "The default is set by promoting a model." if "default" in given.split() else None
