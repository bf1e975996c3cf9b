import { Tag } from '../Tag';
import { UserText } from '../UserText';

/** A list of texts, or of objects with names, as tags. */
export function Words({ words }: { words: unknown[] }) {
  const texts = words.map(word =>
    typeof word === 'object' && word !== null && 'name' in word ? String(word.name) : String(word)
  );
  return texts.length === 0 ? (
    '–'
  ) : (
    <div className="bai-tags bai-words">
      {texts.map(text => (
        <Tag key={text}>
          <UserText text={text} />
        </Tag>
      ))}
    </div>
  );
}
