// Writes a C++ source with the files of a built page as a table of page::PageFile (src/page/page.hpp).
//   node embed.mjs DIST OUT.cpp
// The bytes come in with .incbin: a hexadecimal array of this size takes a compiler seconds.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';

const types = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};

const [dist, out] = process.argv.slice(2).map((path) => resolve(path));
const packed = join(dirname(out), 'gzipped');
mkdirSync(packed, { recursive: true });

const included = [];
const include = (path) => included.push(path) - 1;
const rows = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
  .sort()
  .map((path) => {
    const name = path.slice(dist.length);
    const type = types[name.split('.').pop()];
    if (!type) throw new Error(`${name}: its content type is not known`);
    const bytes = readFileSync(path);
    const gzipped = gzipSync(bytes, { level: 9 });
    const row = { name, type, tag: createHash('sha256').update(bytes).digest('hex').slice(0, 20), plain: include(path), size: bytes.length };
    if (gzipped.length < bytes.length) {
      const file = join(packed, `${row.plain}.gz`);
      writeFileSync(file, gzipped);
      Object.assign(row, { gzipped: include(file), gzipped_size: gzipped.length });
    }
    return row;
  });

const text = (value) => JSON.stringify(value);
const symbol = (i) => `berth_page_${i}`;
const view = (i, size) => (i === undefined ? '{}' : `{${symbol(i)}, ${size}}`);
writeFileSync(
  out,
  `// Made by web/embed.mjs; do not edit.
#include "page/page.hpp"

asm(R"asm(
  .section .rodata
${included.map((path, i) => `${symbol(i)}:\n  .incbin ${text(path)}\n  .byte 0`).join('\n')}
  .previous
)asm");

extern "C" {
${included.map((_, i) => `extern const char ${symbol(i)}[] __attribute__((visibility("hidden")));`).join('\n')}
}

namespace berth::page {
namespace {
constinit const PageFile files[] = {
${rows.map((row) => `    {${text(row.name)}, ${text(row.type)}, ${text(row.tag)}, ${view(row.plain, row.size)}, ${view(row.gzipped, row.gzipped_size)}},`).join('\n')}
};
}  // namespace
extern const std::span<const PageFile> embedded_files;
constinit const std::span<const PageFile> embedded_files = files;
}  // namespace berth::page
`,
);
