import { useState } from 'react';
import { Button, Flex, Input, Radio } from 'antd';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../components/ErrorNotice';
import { useReadRecipe } from '../../data/cluster/customImages';

const KINDS = ['vfolder', 'repo'] as const;
const MAX_URL = 2048;

type Kind = (typeof KINDS)[number];

interface RecipeSourceProps {
  /** Called with the contents of the files, by file name. */
  onRead: (recipe: Record<string, string>) => void;
}

/** Fields to read the files of a recipe from a folder or a git repository. */
export function RecipeSource({ onRead }: RecipeSourceProps) {
  const { t } = useTranslation();
  const [kind, setKind] = useState<Kind>('vfolder');
  const [values, setValues] = useState({ source: '', branch: '', token: '', directory: '' });
  const read = useReadRecipe();
  const change = (name: keyof typeof values) => (event: { target: { value: string } }) =>
    setValues(before => ({ ...before, [name]: event.target.value }));
  const { source, ...others } = values;
  const submit = () =>
    read.mutate(
      {
        vfolder: kind === 'vfolder' ? source.trim() : '',
        repo: kind === 'repo' ? source.trim() : '',
        branch: kind === 'repo' ? others.branch.trim() : '',
        token: kind === 'repo' ? others.token.trim() : '',
        directory: others.directory.trim()
      },
      { onSuccess: ({ recipe }) => onRead(recipe) }
    );
  const text = (name: keyof typeof values, label: string, isSecret = false) => (
    <Input
      aria-label={label}
      placeholder={label}
      autoComplete={isSecret ? 'new-password' : 'off'}
      type={isSecret ? 'password' : 'text'}
      maxLength={MAX_URL}
      value={values[name]}
      onChange={change(name)}
      onPressEnter={event => {
        event.preventDefault();
        submit();
      }}
    />
  );
  return (
    <Flex vertical gap="small">
      <Radio.Group
        optionType="button"
        size="small"
        value={kind}
        options={KINDS.map(value => ({ value, label: t(`custom-images.source-${value}`) }))}
        onChange={event => setKind(event.target.value as Kind)}
      />
      {text('source', t(`custom-images.source-name-${kind}`))}
      {kind === 'repo' && text('branch', t('custom-images.source-branch'))}
      {kind === 'repo' && text('token', t('custom-images.source-token'), true)}
      {text('directory', t('custom-images.source-directory'))}
      <Button onClick={submit} loading={read.isPending} disabled={!source.trim()}>
        {t('custom-images.source-read')}
      </Button>
      {read.error && <ErrorNotice error={read.error} />}
    </Flex>
  );
}
