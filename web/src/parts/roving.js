// A list is one stop for the tab key; inside it the arrow keys, Home and End move between its items (`data-item`).
// In a grid (`data-grid` on the list, `data-group` on its rows of items) up and down go to the item at the same place of the
// group above or below. Enter opens an item, since items are links.

const item = '[data-item]';

/** @param {HTMLElement} list */
export function roving(list) {
  const items = () => /** @type {HTMLElement[]} */ ([...list.querySelectorAll(item)]);
  function keep_one_stop() {
    if (!list.querySelector(`${item}[tabindex="0"]`)) list.querySelector(item)?.setAttribute('tabindex', '0');
  }
  /** @param {any} event */
  function focused(event) {
    const target = event.target.closest?.(item);
    if (!target) return;
    for (const other of list.querySelectorAll(`${item}[tabindex="0"]`)) if (other !== target) other.setAttribute('tabindex', '-1');
    target.setAttribute('tabindex', '0');
  }
  /** @param {any} event */
  function pressed(event) {
    const target = event.target.closest?.(item);
    if (!target || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = neighbour(target, event.key);
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: 'nearest' });
  }
  /** @type {(target: HTMLElement, key: string) => HTMLElement | undefined} */
  function neighbour(target, key) {
    const all = items();
    const at = all.indexOf(target);
    const grid = target.closest('[data-grid]');
    switch (key) {
      case 'Home':
        return all[0];
      case 'End':
        return all.at(-1);
      case 'ArrowLeft':
        return all[at - 1];
      case 'ArrowRight':
        return all[at + 1];
      case 'ArrowUp':
      case 'ArrowDown': {
        const step = key === 'ArrowDown' ? 1 : -1;
        if (!grid) return all[at + step];
        const groups = [...grid.querySelectorAll('[data-group]')];
        const group = /** @type {Element} */ (target.closest('[data-group]'));
        const columns = getComputedStyle(grid).gridTemplateColumns.split(' ').length;
        const other = groups[groups.indexOf(group) + step * columns];
        const place = [...group.querySelectorAll(item)].indexOf(target);
        const there = other ? /** @type {HTMLElement[]} */ ([...other.querySelectorAll(item)]) : [];
        return there[Math.min(place, there.length - 1)];
      }
    }
  }
  const observer = new MutationObserver(keep_one_stop);
  observer.observe(list, { childList: true, subtree: true });
  keep_one_stop();
  list.addEventListener('focusin', focused);
  list.addEventListener('keydown', pressed);
  return {
    destroy() {
      observer.disconnect();
    },
  };
}
