import { useTranslation } from 'react-i18next';
import { formatBytes } from '../../components/bytes';
import { Tag } from '../../components/Tag';
import { formatTime } from '../../components/time';
import { UserText } from '../../components/UserText';
import type { ModelCard } from '../../data/serving/models';

interface ModelTileProps {
  model: ModelCard;
  onOpen: () => void;
}

/** A card of the gallery; it is pale if the user's quotas permit no replica of the model. */
export function ModelTile({ model, onOpen }: ModelTileProps) {
  const { t, i18n } = useTranslation();
  return (
    <button
      type="button"
      className={model.is_fitting === false ? 'bai-model bai-model-large' : 'bai-model'}
      onClick={onOpen}
    >
      <span className="bai-model-head">
        <ModelIcon title={model.title} />
        <strong>
          <UserText text={model.title} />
        </strong>
      </span>
      <span className="bai-tags">
        {model.problem && <Tag color="red">{t('models.invalid')}</Tag>}
        {model.is_fitting === false && <Tag color="orange">{t('models.too-large')}</Tag>}
        {model.version && (
          <Tag>
            <UserText text={model.version} />
          </Tag>
        )}
        {model.task && (
          <Tag color="blue">
            <UserText text={model.task} />
          </Tag>
        )}
        {model.license && (
          <Tag>
            <UserText text={model.license} />
          </Tag>
        )}
      </span>
      <span className="bai-model-text">
        <UserText text={model.description} />
      </span>
      <span className="bai-model-foot">
        {model.author && <UserText text={model.author} />}
        {model.size_bytes !== null && <span>{formatBytes(model.size_bytes, i18n.language)}</span>}
        <span>{formatTime(model.created_at, i18n.language)}</span>
      </span>
    </button>
  );
}

const COLORS = ['#1668dc', '#389e0d', '#d46b08', '#c41d7f', '#531dab', '#08979c'];

/** The first letter of the title on a color that depends on the title. */
function ModelIcon({ title }: { title: string }) {
  const letters = Array.from(title);
  const sum = letters.reduce((total, letter) => total + (letter.codePointAt(0) ?? 0), 0);
  return (
    <span
      aria-hidden
      className="bai-model-icon"
      style={{ background: COLORS[sum % COLORS.length] }}
    >
      {letters[0]?.toUpperCase() ?? '?'}
    </span>
  );
}
