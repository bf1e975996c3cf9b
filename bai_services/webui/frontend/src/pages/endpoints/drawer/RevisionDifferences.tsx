import { Flex, Select, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../../components/CardTable';
import type { Revision } from '../../../data/serving/endpoints';
import { differences, type Difference } from '../differences';
import type { EndpointsSearch } from '../search';
import type { ChangeSearch } from './EndpointDrawer';

interface RevisionDifferencesProps {
  /** At least two, the newest first. */
  revisions: Revision[];
  search: EndpointsSearch;
  onChange: ChangeSearch;
}

/** The settings that differ between two revisions; at first, the last two. */
export function RevisionDifferences({ revisions, search, onChange }: RevisionDifferencesProps) {
  const { t } = useTranslation();
  const find = (number: number | undefined, place: number) =>
    revisions.find(revision => revision.number === number) ?? revisions[place];
  const [before, after] = [find(search.before, 1), find(search.after, 0)];
  const choice = (name: 'before' | 'after', revision: Revision | undefined) => (
    <Select
      aria-label={t(`endpoints.${name}`)}
      style={{ minWidth: 140 }}
      value={revision?.number ?? null}
      onChange={(number: number) => onChange({ [name]: number })}
      options={revisions.map(({ number }) => ({
        value: number,
        label: t('endpoints.revision-number', { number })
      }))}
    />
  );
  const value = (text: string) => (
    <code style={{ overflowWrap: 'anywhere', whiteSpace: 'pre-wrap' }}>{text || '–'}</code>
  );
  return (
    <section style={{ marginBlockStart: 16 }}>
      <Typography.Title level={5}>{t('endpoints.differences')}</Typography.Title>
      <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        {choice('before', before)}
        <span aria-hidden>→</span>
        {choice('after', after)}
      </Flex>
      {(after?.hidden_fields.length ?? 0) > 0 && <p>{t('endpoints.hidden-settings')}</p>}
      <CardTable<Difference>
        rowKey="path"
        size="small"
        pagination={false}
        dataSource={differences(before?.settings, after?.settings)}
        locale={{ emptyText: t('endpoints.no-differences') }}
        columns={[
          {
            key: 'path',
            width: '30%',
            title: t('endpoints.setting'),
            render: (_, row) => value(row.path)
          },
          { key: 'before', title: t('endpoints.before'), render: (_, row) => value(row.before) },
          { key: 'after', title: t('endpoints.after'), render: (_, row) => value(row.after) }
        ]}
      />
    </section>
  );
}
