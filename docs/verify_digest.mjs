// Recomputes approval digests without any of our code: node, no packages.
//
//   node verify_digest.mjs < binding.json              prints the digest of the array
//   node verify_digest.mjs DIGEST < binding.json       exit code 0 if it is the same, 1 if not
//
// Standard input holds one JSON array a line (docs/digest.md says what is in it); spaces and the
// order of keys do not matter. Text that has no digest ends with exit code 2.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const TOKEN = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/g;

// JSON.parse would round large integers. So each string is marked with an "s" in front, and each
// integer beyond 2^53 - 1 becomes a string marked with an "i".
function parse(text) {
  let members = 0;
  const marked = text.replace(TOKEN, (token, string, colon, fraction, exponent) => {
    if (colon) members += 1;
    if (string) return `"s${token.slice(1)}`;
    const exact = fraction || exponent || Number.isSafeInteger(Number(token));
    return exact ? token : `"i${token}"`;
  });
  return { value: JSON.parse(marked), members };
}

function canonical(value, seen) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new Error("not a finite number");
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new Error("lone surrogate");
    return value[0] === "i" ? value.slice(1) : JSON.stringify(value.slice(1));
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, seen)).join()}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const keys = Object.keys(value).sort(); // by UTF-16 code units
  seen.members += keys.length;
  return `{${keys.map((key) => `${canonical(key, seen)}:${canonical(value[key], seen)}`).join()}}`;
}

function digest(text) {
  const { value, members } = parse(text);
  const tagged = Array.isArray(value) && value[0] === "sengine-assistant/approval/1";
  const bound = tagged ? value.slice(1, 10) : [];
  const strings = bound.every((item) => typeof item === "string" && item[0] === "s");
  if (!tagged || value.length !== 11 || !strings) throw new Error("not an approval binding");
  const seen = { members: 0 };
  const bytes = canonical(value, seen);
  if (seen.members !== members) throw new Error("a key is given twice");
  return createHash("sha256").update(bytes, "utf8").digest("hex");
}

try {
  const text = new TextDecoder("utf-8", { fatal: true }).decode(readFileSync(0));
  const digests = text.split("\n").filter((line) => line.trim()).map(digest);
  if (digests.length === 0) throw new Error("empty input");
  console.log(digests.join("\n"));
  const expected = process.argv[2];
  if (expected !== undefined) process.exitCode = digests.every((d) => d === expected) ? 0 : 1;
} catch (error) {
  console.error(`no digest: ${error.message}`);
  process.exitCode = 2;
}
