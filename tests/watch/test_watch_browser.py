"""The page in a real browser: it opens, moves, and survives what happens to runs and servers."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from basil.peer.members import authority
from basil.peer.run.status import Status

from watch_helpers import GrowingRun, served

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
PHONE = {"viewport": {"width": 360, "height": 740}}


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    made = GrowingRun(tmp_path / "run")
    made.go_on(12)
    return made


def shows(page: Any, what: str, text: str) -> None:
    """The page comes to show this text there."""
    page.wait_for_function(
        "([what, text]) => document.querySelector(what)?.textContent.includes(text)",
        arg=[what, text],
    )


def test_it_opens_and_shows_ring_curves_nodes_and_events(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        page = page_of(site.url)
        shows(page, "#title", "Basil · Gaussian")
        shows(page, "#state", "live")
        shows(page, "#round", "Round 12")
        shows(page, "#nodes", "chose a Byzantine model 10×")
        shows(page, "#log", "began: 6 nodes, 1 of them Byzantine")
        assert page.locator("#ring .node").count() == 6
        assert page.locator("#ring .node.lies").count() == 1
        assert page.locator("#nodes tr").count() == 6
        titles = page.locator(".curve h2").all_text_contents()
        assert titles == ["Test accuracy", "Test loss", "Sent", "Time"]
        assert page.locator(".curve .value").first.text_content() == "83.9\xa0%"
        shows(page, "#legend", "Byzantine (1)")
        # A click on a node leaves its choices alone to be seen.
        before = page.locator(".edge.age1.honest").get_attribute("d")
        page.locator("#nodes button").nth(1).click()
        page.wait_for_function(
            "before => document.querySelector('.edge.age1.honest').getAttribute('d') !== before",
            arg=before,
        )
        assert page.locator("#nodes button").nth(1).get_attribute("aria-pressed") == "true"


def test_it_moves_while_the_run_goes_on(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        page = page_of(site.url)
        shows(page, "#round", "Round 12")
        run.go_on()
        shows(page, "#round", "Round 13")
        # The turn goes round the ring.
        page.wait_for_function(
            "() => document.querySelector('.halo').getAttribute('visibility') === 'visible'"
        )
        run.round += 1
        line = json.dumps(run.measurement()) + "\n"
        run.append("metrics.jsonl", line[:30])  # cut off
        run.append("metrics.jsonl", line[30:])
        shows(page, "#round", "Round 14")
        run.finish()
        shows(page, "#state", "finished")
        assert page.locator("#round").text_content() == "Round 14"


def test_a_slider_and_a_player_go_through_the_rounds(run: GrowingRun, page_of: Any) -> None:
    run.go_on(150)
    run.finish()
    with served(run.folder) as site:
        page = page_of(site.url, reduced_motion="reduce")
        shows(page, "#round", "Round 162")
        page.focus("#slider")
        page.keyboard.press("ArrowLeft")
        shows(page, "#round", "Round 161")
        page.keyboard.press("Home")
        shows(page, "#round", "Round 0")
        assert page.locator(".curve .value").first.text_content() == "10.0\xa0%"
        for _ in range(5):  # rounds that the page was not told when it opened
            page.keyboard.press("ArrowRight")
        shows(page, "#round", "Round 5")
        page.wait_for_function("() => document.querySelector('.edge.age0').getAttribute('d')")
        page.focus("#play")
        page.keyboard.press("Enter")
        shows(page, "#round", "Round 7")
        page.keyboard.press("Enter")
        page.click("#live")
        shows(page, "#round", "Round 162")


def test_it_survives_a_run_that_begins_again(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        page = page_of(site.url)
        shows(page, "#round", "Round 12")
        run.begin()
        run.go_on(2)
        shows(page, "#log", "the run began again")
        shows(page, "#round", "Round 2")
        for file in list(run.folder.iterdir()):
            file.unlink()
        shows(page, "#empty", "Nothing has begun here yet")
        GrowingRun(run.folder, nodes=9).go_on(3)
        shows(page, "#round", "Round 3")
        assert page.locator("#ring .node").count() == 9


def test_it_survives_a_server_that_begins_again(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        page = page_of(site.url)
        shows(page, "#round", "Round 12")
    shows(page, "#lost", "cannot be reached")
    assert page.locator("#lost").is_visible()
    assert page.locator("#ring .node").count() == 6  # what it knew last
    run.go_on()
    with served(run.folder, port=site.port):
        shows(page, "#round", "Round 13")
        page.wait_for_selector("#lost", state="hidden")
        page.focus("#slider")
        page.keyboard.press("PageDown")
        shows(page, "#round", "Round 12")
    shows(page, "#lost", "cannot be reached")
    with served(run.folder, port=site.port):  # whoever looks at an earlier round stays there
        page.wait_for_selector("#lost", state="hidden")
        shows(page, "#round", "Round 12")


def test_hostile_names_are_text(tmp_path: Path, page_of: Any) -> None:
    GrowingRun(tmp_path / "runs" / "a<b>&quot;", attack=HOSTILE).go_on(2)
    with served(tmp_path / "runs") as site:
        page = page_of(site.url)
        shows(page, "#grid h2", "onerror")
        page.click(".cell")
        shows(page, "#title", "<script>alert(2)</script>")
        assert page.locator("img").count() == 0
        assert page.locator("script").count() == 1
    authority.init(tmp_path / "ring", authority.demo_recipe(4), [HOSTILE, "b:1", "c:1", "d:1"])
    Status(0, 1, "training", 3, 80, attack=HOSTILE).write(tmp_path / "ring/node-0")
    with served(tmp_path / "ring") as site:
        page = page_of(site.url)
        shows(page, "#nodes", HOSTILE)
        assert page.locator("img").count() == 0


def test_a_wrong_token_shows_a_sentence_and_nothing_else(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        page = page_of(site.url[:-2] + "x/")
        assert "Wrong or missing token" in page.inner_text("body")
        assert page.locator("script").count() == 0


def test_ten_viewers_see_the_same(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        pages = [page_of(site.url) for _ in range(2)]
        with ExitStack() as others:
            following = [others.enter_context(site.listening()) for _ in range(8)]
            assert {each()["round"] for each in following} == {12}
            run.go_on()
            for page in pages:
                shows(page, "#round", "Round 13")
            assert {each()["round"] for each in following} == {13}


def test_many_runs_fill_a_grid_and_open(tmp_path: Path, page_of: Any) -> None:
    plan = [{"folder": f"run-{i}", "scheme": "basil", "attack": "gaussian"} for i in range(2)]
    (tmp_path / "cases.json").write_text(json.dumps({"cases": plan}))
    run = GrowingRun(tmp_path / "run-0")
    run.go_on(3)
    with served(tmp_path) as site:
        page = page_of(site.url)
        shows(page, "#title", "0 of 2 runs finished")
        shows(page, ".cell.state-waiting", "waiting")
        run.finish()
        shows(page, "#title", "1 of 2 runs finished")
        page.focus(".cell[href]")
        page.keyboard.press("Enter")
        shows(page, "#round", "Round 3")
        page.reload()
        shows(page, "#round", "Round 3")
        page.click("#back")
        shows(page, "#title", "1 of 2 runs finished")
        assert page.locator(".cell").count() == 2
        assert page.locator(".cell.state-waiting").count() == 1


def test_ten_thousand_nodes_are_no_ten_thousand_dots(tmp_path: Path, page_of: Any) -> None:
    run = GrowingRun(tmp_path / "run", nodes=10_000, byzantine=tuple(range(0, 10_000, 3)))
    run.go_on(2)
    with served(run.folder) as site:
        page = page_of(site.url)
        shows(page, "#legend", "3333 of 6666 chose a Byzantine model")
        assert page.locator("#ring *").count() < 400
        assert page.locator(".nodes").is_hidden()


CONTRAST = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
  };
  const poor = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const words = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!words || !node.getClientRects().length || node.closest(".hidden")) continue;
    const style = getComputedStyle(node);
    const ink = rgb(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) poor.push(node.textContent + " " + style.color);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_in_the_light_and_in_the_dark(
    run: GrowingRun, page_of: Any, scheme: str
) -> None:
    run.go_on(away=(4,))
    with served(run.folder) as site:
        page = page_of(site.url, color_scheme=scheme, **PHONE)
        shows(page, "#round", "Round 13")
        shows(page, "#log", "chose a Byzantine model")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(CONTRAST) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(247, 247, 245)", "dark": "rgb(22, 24, 28)"}[scheme]


UNNAMED = """() => {
  const name = node => node.textContent.trim() || node.getAttribute("aria-label")
    || node.getAttribute("aria-labelledby");
  const all = document.querySelectorAll("button, input, a, [role=img], [tabindex='0']");
  return [...all].filter(n => n.getClientRects().length && !name(n)).map(n => n.outerHTML);
}"""


def test_it_can_be_used_without_a_mouse_and_without_eyes(run: GrowingRun, page_of: Any) -> None:
    with served(run.folder) as site:
        page = page_of(site.url)
        shows(page, "#round", "Round 12")
        assert page.evaluate(UNNAMED) == []
        live = page.locator("[aria-live], [role=status], [role=alert], [role=log]")
        assert live.count() == 2  # the state and a lost connection, not every number
        reached = []
        for _ in range(8):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("document.activeElement.id || document.activeElement.className")
            )
        assert reached[0] == "skip"
        assert {"play", "slider", "live", "plain"} <= {*reached}
        assert "Round 12" in page.locator("#ring-said").text_content()
        said = page.locator(".curve svg").first.get_attribute("aria-label")
        assert said == "Test accuracy up to round 12: worst 83.9\xa0% · mean 85.9\xa0%"
