// The tags that say what a user may do, each with what it allows.

import { CheckField } from "../../ui/fields";
import { words } from "../../words";

const { tags: TITLE, tagTexts } = words.users;

const TAGS = Object.entries(tagTexts);

export function TagField({
  tags,
  onTags,
}: {
  tags: readonly string[];
  onTags: (tags: string[]) => void;
}) {
  const set = (tag: string, isSet: boolean) => {
    const others = tags.filter((it) => it !== tag);
    onTags(isSet ? [...others, tag] : others);
  };
  return (
    <fieldset>
      <legend>{TITLE}</legend>
      {TAGS.map(([tag, does]) => (
        <CheckField
          key={tag}
          label={`${tag}: ${does}`}
          checked={tags.includes(tag)}
          onCheck={(isSet) => set(tag, isSet)}
        />
      ))}
    </fieldset>
  );
}
