// The hands of an operator: they act on a page, and count what they do.

export class Hands {
  clicks = 0;
  keys = 0;

  constructor(page) {
    this.page = page;
  }

  async click(target) {
    this.clicks += 1;
    await target.click();
  }

  /** Puts the cursor into a field with a click, and types over what is there. */
  async type(target, text) {
    await this.click(target);
    await target.fill("");
    await this.write(text);
  }

  /** Goes on to the next field with the keyboard, and types. */
  async next(text) {
    await this.press("Tab");
    await this.write(text);
  }

  /** Types where the cursor is. */
  async write(text) {
    this.keys += text.length;
    await this.page.keyboard.type(text);
  }

  async press(...keys) {
    for (const key of keys) {
      this.keys += 1;
      await this.page.keyboard.press(key);
    }
  }

  /** A choice of a list counts as one click. */
  async choose(target, value) {
    this.clicks += 1;
    await target.selectOption(value);
  }
}
