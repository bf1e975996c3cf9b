import { Flex, Tag, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { CardTable } from '../../components/CardTable';
import type { Outcomes } from '../../data/accounts/users';
import type { ImportRow } from './csvUsers';
import { UserText } from '../../components/UserText';

const SHOWN = ['email', 'username', 'full_name', 'role', 'domain', 'projects'] as const;

interface ImportPreviewProps {
  rows: ImportRow[];
  outcomes: Outcomes;
}

/** The rows of a file with their problems and, after the import, the server's responses. */
export function ImportPreview({ rows, outcomes }: ImportPreviewProps) {
  const { t } = useTranslation();
  const invalid = rows.filter(row => row.problems.length > 0).length;
  return (
    <>
      <Typography.Paragraph role="status">
        {t('user-import.totals', { valid: rows.length - invalid, invalid })}
      </Typography.Paragraph>
      <CardTable<ImportRow>
        rowKey="number"
        size="small"
        scroll={{ x: 'max-content' }}
        dataSource={rows}
        columns={[
          { key: 'number', title: t('user-import.row'), dataIndex: 'number' },
          {
            key: 'outcome',
            title: t('user-import.outcome'),
            render: (_, row) => <Outcome row={row} outcomes={outcomes} />
          },
          ...SHOWN.map(column => ({
            key: column,
            title: t(`user-import.${column.replaceAll('_', '-')}`),
            render: (_: unknown, row: ImportRow) => <UserText text={row.cells[column] ?? '–'} />
          }))
        ]}
      />
    </>
  );
}

function Outcome({ row, outcomes }: { row: ImportRow; outcomes: Outcomes }) {
  const { t } = useTranslation();
  if (row.problems.length > 0) {
    return (
      <Flex vertical gap={4}>
        {row.problems.map(problem => (
          <Typography.Text key={problem} type="danger">
            {t(`user-import.problem-${problem}`)}
          </Typography.Text>
        ))}
      </Flex>
    );
  }
  const refusal = outcomes.get(row.number);
  if (refusal !== undefined) {
    return <Typography.Text type="danger">{refusal}</Typography.Text>;
  }
  return outcomes.has(row.number) ? (
    <Tag color="green">{t('user-import.created')}</Tag>
  ) : (
    <Tag>{t('user-import.valid')}</Tag>
  );
}
