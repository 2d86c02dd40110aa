/* Form fields from a JSON schema: one per key, with description, type and error message. */

import { h, say } from "./dom.js";
import { overrideOf, shownText } from "./toml.js";

/** Sections of a schema: [name, description, [key, property] ...]; top-level keys come first. */
export function sectionsOf(schema) {
  const top = [];
  const sections = [];
  for (const [key, property] of Object.entries(schema.properties)) {
    const section = resolve(property, schema);
    if (section.type === "object" && section.properties) {
      sections.push({ name: key, about: section.description ?? "", fields: Object.entries(section.properties) });
    } else {
      top.push([key, property]);
    }
  }
  return { top, sections };
}

/**
 * A field. key: the full key; property: its schema; value: initial value. onInput is called when
 * it changes. Returns { element, key, override(): text or null when unchanged, set(value), complain(sentence) }.
 */
export function makeField(key, property, schema, value, onInput) {
  const id = `field-${key.replaceAll(".", "-")}`;
  const error = h("span", { class: "wrong", id: `${id}-error` });
  const about = property.description ?? "";
  const control = controlOf(property, schema, id, onInput);
  control.setAttribute("aria-describedby", `${id}-about ${id}-error`);
  let start = "";
  const element = h("div", { class: "field" },
    h("label", { for: id }, key.split(".").pop()), control, error, h("small", { id: `${id}-about` }, clean(about)));
  const set = (next) => {
    start = shownText(next);
    // A run started elsewhere may use a part that is not registered here.
    const known = control.tagName !== "SELECT" || [...control.options].some(({ value: one }) => one === start);
    if (!known) control.append(h("option", { value: start }, start));
    control.value = start;
    mark();
  };
  const mark = () => element.classList.toggle("changed", control.value !== start);
  control.addEventListener("input", mark);
  set(value);
  return {
    element, key, set,
    text: () => control.value,
    type(text) {
      control.value = text;
      mark();
    },
    override: () => (control.value === start ? null : overrideOf(key, control.value, isText(property))),
    complain(sentence) {
      say(error, sentence);
      control.setAttribute("aria-invalid", sentence ? "true" : "false");
    },
  };
}

function controlOf(property, schema, id, onInput) {
  const choices = choicesOf(property);
  if (choices) {
    const options = choices.map((choice) => h("option", { value: choice }, choice || "default"));
    return h("select", { id, oninput: onInput }, options);
  }
  const kinds = kindsOf(property, schema);
  const numeric = kinds.every((kind) => kind === "number" || kind === "integer");
  return h("input", {
    id, type: "text", oninput: onInput, autocomplete: "off", spellcheck: "false", maxlength: 1900,
    inputmode: numeric ? "decimal" : "text", placeholder: mayBeNone(property) ? "not set" : "",
  });
}

/** The options, if the schema lists them, as for registered parts; booleans have two. */
function choicesOf(property) {
  if (property.enum) return property.enum;
  if (property.examples) return property.examples;
  if (property.type === "boolean") return ["true", "false"];
  const listed = property.anyOf?.find((one) => one.enum);
  return listed ? ["", ...listed.enum] : null;
}

function kindsOf(property, schema) {
  const parts = property.anyOf ?? [property];
  return parts.map((part) => resolve(part, schema).type).filter((kind) => kind !== "null");
}

function isText(property) {
  return (property.anyOf ?? [property]).some((part) => part.type === "string" || part.enum);
}

function mayBeNone(property) {
  return Boolean(property.anyOf?.some((part) => part.type === "null"));
}

function resolve(property, schema) {
  const name = property.$ref?.split("/").pop();
  return name ? schema.$defs[name] : property;
}

/** Descriptions mark code with back ticks. */
function clean(text) {
  return text.replaceAll("`", "");
}
