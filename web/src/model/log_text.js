// The output of a replica as text for the page: without sequences for a terminal, and no more of it than a browser shows with ease.

const lines_max = 2000;
const bytes_max = 400_000;

// CSI and OSC sequences, other escapes, and control characters but tab and newline.
const sequences = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]?|[\x00-\x08\x0b-\x1f\x7f]/g;
// One that has not come to its end.
const begun = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}|[ -/]*)$/;

/** @type {(text: string) => string} */
export function plain(text) {
  return text.replace(sequences, '');
}

// Makes plain text of pieces as they come: what begins in one piece may end in the next.
export function plain_pieces() {
  let rest = '';
  return (/** @type {string} */ piece) => {
    const all = rest + piece;
    const from = begun.exec(all)?.index ?? all.length;
    rest = all.slice(from);
    return plain(all.slice(0, from));
  };
}

// The end of `text` that is kept; begins with a whole line where something was left out.
/** @type {(text: string) => string} */
export function newest(text) {
  let from = Math.max(0, text.length - bytes_max);
  let lines = 0;
  for (let at = text.length - 1; at >= from; at -= 1) {
    if (text[at] === '\n' && (lines += 1) > lines_max) from = at + 1;
  }
  if (from === 0) return text;
  return text[from - 1] === '\n' ? text.slice(from) : text.slice(text.indexOf('\n', from) + 1 || from);
}
