"""Check the contrast of pages in several display settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import Locator

# JavaScript that returns the text or class and the contrast ratio of each node with insufficient
# contrast: below 4.5 for text, below 3 for lines and status dots (WCAG 2.2, 1.4.3 and 1.4.11).
LOW_CONTRAST = """
nodes => {
    for (const change of document.getAnimations()) {
        // Measure the final colors, not those during a transition.
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
    const low = [];
    const check = (name, ratio, minimum) => {
        if (ratio < minimum) low.push(`${name}: ${ratio.toFixed(2)}`);
    };
    for (const node of nodes.flatMap(each => [each, ...each.querySelectorAll('*')])) {
        if (!node.checkVisibility()) continue;
        const style = getComputedStyle(node);
        const text = [...node.childNodes].filter(child => child.nodeType === Node.TEXT_NODE)
            .map(child => child.data).join('').trim();
        if (text) check(text, contrast(style.color, node), 4.5);
        if (node.matches('.bai-Chart-line, .bai-Chart-second')) {
            check(node.getAttribute('class'), contrast(style.stroke, node.parentElement), 3);
        }
        if (node.matches('.bai-State')) {
            const dot = getComputedStyle(node, '::before');
            const ratios = [dot.backgroundColor, dot.borderTopColor].map(c => contrast(c, node));
            check(`dot of ${text}`, Math.max(...ratios), 3);
        }
    }
    return low;
}
"""
DEFAULT_MEDIA: dict[str, Any] = {
    "contrast": "no-preference",
    "forced_colors": "none",
    "color_scheme": "light",
}
MEDIA: dict[str, dict[str, Any]] = {
    "default": {},
    "dark": {"color_scheme": "dark"},
    "high-contrast": {"contrast": "more"},
    "forced-light": {"forced_colors": "active"},
    "forced-dark": {"forced_colors": "active", "color_scheme": "dark"},
}


async def assert_contrast(shown: Locator, name: str, folder: Path) -> None:
    """Assert that the nodes of ``shown`` have sufficient contrast in each display setting.

    Save a screenshot for each setting in ``folder``, for reviewers.
    """
    page = shown.page
    for setting, media in MEDIA.items():
        await page.emulate_media(**{**DEFAULT_MEDIA, **media})
        await page.screenshot(path=folder / f"{name}-{setting}.png", animations="disabled")
        assert await shown.evaluate_all(LOW_CONTRAST) == [], setting
    await page.emulate_media(**DEFAULT_MEDIA)
