// Every visible text of an element with the contrast to what is behind it, as WCAG 2 counts it.
(root) => {
  const parse = (text) => {
    const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (top, under) => {
    const mix = (name) => top[name] * top.alpha + under[name] * (1 - top.alpha);
    return { red: mix("red"), green: mix("green"), blue: mix("blue"), alpha: 1 };
  };
  const behind = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement) {
      layers.push(parse(getComputedStyle(each).backgroundColor));
    }
    return layers.reduceRight((under, top) => over(top, under), parse("rgb(255, 255, 255)"));
  };
  const light = ({ red, green, blue }) => {
    const linear = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const found = [];
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    const said = texts.currentNode.textContent.trim();
    if (!said || node.closest("style, [aria-hidden=true]") || !node.checkVisibility()) continue;
    const ground = behind(node);
    const [one, other] = [over(parse(getComputedStyle(node).color), ground), ground].map(light);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push([ratio, said.slice(0, 40), node.className]);
  }
  return found;
};
