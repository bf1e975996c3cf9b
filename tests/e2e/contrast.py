"""Contrast of pages, under themes and under the user's own display settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Locator

# Returns nodes with insufficient contrast: text below 4.5, lines and signs below 3 (WCAG 2.2, 1.4.3
# and 1.4.11).
HARD_TO_SEE = """
nodes => {
    for (const change of document.getAnimations()) {
        // The colours as they will be, not on their way there.
        if (change instanceof CSSTransition) change.finish();
    }
    const parsed = text => text.match(/[\\d.]+/g).map(Number);
    const over = ([r, g, b, a = 1], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
    const groundOf = node => {
        const layers = [];
        for (let at = node; at; at = at.parentElement) {
            layers.unshift(parsed(getComputedStyle(at).backgroundColor));
        }
        return layers.reduce((under, top) => over(top, under), [255, 255, 255]);
    };
    const light = colour => colour
        .map(c => c / 255)
        .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const contrast = (colour, node) => {
        const ground = groundOf(node);
        const [less, more] = [light(over(parsed(colour), ground)), light(ground)]
            .sort((a, b) => a - b);
        return (more + 0.05) / (less + 0.05);
    };
    const found = [];
    const look = (what, ratio, least) => {
        if (ratio < least) found.push(`${what}: ${ratio.toFixed(2)}`);
    };
    for (const node of nodes.flatMap(each => [each, ...each.querySelectorAll('*')])) {
        if (!node.checkVisibility()) continue;
        const style = getComputedStyle(node);
        const text = [...node.childNodes].filter(child => child.nodeType === Node.TEXT_NODE)
            .map(child => child.data).join('').trim();
        if (text) look(text, contrast(style.color, node), 4.5);
        if (node.matches('.bai-Chart-line, .bai-Chart-second')) {
            look(node.getAttribute('class'), contrast(style.stroke, node.parentElement), 3);
        }
        if (node.matches('.bai-State')) {
            const dot = getComputedStyle(node, '::before');
            const ratios = [dot.backgroundColor, dot.borderTopColor].map(c => contrast(c, node));
            look(`sign of ${text}`, Math.max(...ratios), 3);
        }
    }
    return found;
}
"""
USUAL: dict[str, Any] = {
    "contrast": "no-preference",
    "forced_colors": "none",
    "color_scheme": "light",
}
SPECS: dict[str, dict[str, Any]] = {
    "usual": {},
    "dark": {"color_scheme": "dark"},
    "more": {"contrast": "more"},
    "forced-light": {"forced_colors": "active"},
    "forced-dark": {"forced_colors": "active", "color_scheme": "dark"},
}


async def look_at_contrast(shown: Locator, name: str, folder: Path) -> None:
    """Check the contrast of the shown nodes, and save screenshots for reviewers."""
    page = shown.page
    for spec, media in SPECS.items():
        await page.emulate_media(**{**USUAL, **media})
        await page.screenshot(path=folder / f"{name}-{spec}.png", animations="disabled")
        assert await shown.evaluate_all(HARD_TO_SEE) == [], spec
    await page.emulate_media(**USUAL)
