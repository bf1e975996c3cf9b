import { useTranslation } from 'react-i18next';
import { UserText } from '../../components/UserText';

interface Change {
  before?: unknown;
  after?: unknown;
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));

/** Details of an audit entry; for an update, the values before and after. */
export function EntryDetails({ details }: { details: Record<string, unknown> }) {
  const { t } = useTranslation();
  const { changes, fields, ...others } = details;
  const isUpdate = typeof changes === 'object' && changes !== null;
  const lines = Object.entries(isUpdate ? others : { ...others, ...(fields ? { fields } : {}) });
  const changed = isUpdate ? Object.entries(changes as Record<string, Change>) : [];
  if (lines.length + changed.length === 0) {
    return <>–</>;
  }
  return (
    <ul className="bai-words" style={{ margin: 0, paddingInlineStart: 16 }}>
      {lines.map(([name, value]) => (
        <li key={name}>
          {name}: <UserText text={textOf(value)} />
        </li>
      ))}
      {changed.map(([name, change]) => (
        <li key={`change ${name}`}>
          {name}:{' '}
          {'after' in change ? (
            <>
              <del aria-label={t('audit-log.before')}>
                <UserText text={textOf(change.before)} />
              </del>{' '}
              →{' '}
              <ins aria-label={t('audit-log.after')} style={{ textDecoration: 'none' }}>
                <UserText text={textOf(change.after)} />
              </ins>
            </>
          ) : (
            t('audit-log.secret')
          )}
        </li>
      ))}
    </ul>
  );
}
